"""Level-triggered reconciling: reconcile handlers, their schedules, and the children that they want."""
