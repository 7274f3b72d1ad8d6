"""The reconciler: what is done for one object, from its pending events to the completion of its cause."""
