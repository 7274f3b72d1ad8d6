"""How functions become handlers: registries, options, sub-handlers."""
