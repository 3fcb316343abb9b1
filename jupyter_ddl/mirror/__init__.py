"""A controller elsewhere, as if it were here: its runs copied, its requests passed on."""
