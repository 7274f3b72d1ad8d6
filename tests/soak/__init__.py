"""The soak: an operator amid everything that goes wrong, and its ports under attack. See CONTRIBUTING.md."""
