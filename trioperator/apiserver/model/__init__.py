"""Values that all rooms share: kinds and their schemas, requests and responses, errors, selectors, users. No I/O."""
