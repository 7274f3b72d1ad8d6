"""Authentication, impersonation and RBAC authorization, tokens, and the reviews that answer questions about access."""
