"""Request bodies: JSON, YAML, protobuf, patches and delete options, decoded and checked."""
