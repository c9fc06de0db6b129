"""What identifies an artifact: target, key, qualities, manifest, and the rules that compare them."""
