"""Who may use which slot, and how many workers an adaptive cluster wants.  Pure."""
