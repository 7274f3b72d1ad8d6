"""Rules of the built-in kinds: decoding by type, defaults, strategies, versions and validation."""
