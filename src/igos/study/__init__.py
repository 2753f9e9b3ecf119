"""A study: many photos × methods × resolutions, kept in one SQLite file, and its tables."""
