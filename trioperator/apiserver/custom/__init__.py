"""Custom resources: definitions, structural schemas, CEL validation rules and JSONPath."""
