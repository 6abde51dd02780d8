"""All SQL statements, one file a noun. Functions take a session first; none commits."""
