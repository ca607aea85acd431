"""What a run is asked for: options, project files, data in memory, and the printed command."""
