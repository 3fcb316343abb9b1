"""Training frameworks report by themselves: one module per library, and what they share."""
