"""The nouns that travel down: frozen msgspec structs, no behaviour beyond validation."""
