"""What ``%%distribute`` can do: one module per verb."""
