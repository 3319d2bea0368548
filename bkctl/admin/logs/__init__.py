"""Judge what verifying entry logs and journals leaves to judge: digests, marks, and the next steps."""
