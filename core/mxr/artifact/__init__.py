"""What identifies an artifact: target, key, attributes, manifest, and the rules that compare them."""
