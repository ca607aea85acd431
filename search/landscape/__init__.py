"""The states that a search may reach, and what changes of them do to predicted layers."""
