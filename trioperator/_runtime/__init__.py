"""The machinery of tasks: from watch events to the turns of objects, and back as patches."""
