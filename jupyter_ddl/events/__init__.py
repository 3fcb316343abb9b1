"""What comes up: messages, codec, ledger, and the one reducer that folds them."""
