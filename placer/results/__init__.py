"""The documents that a user keeps: result.json and the records of an onboarding."""
