"""Small wrappers around a text environment. Each does one thing; none changes rules or rewards."""
