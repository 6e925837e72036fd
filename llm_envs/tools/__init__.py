"""What actions may call outside their own process, such as running code (`sandbox`)."""
