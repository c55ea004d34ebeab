"""How far every kernel of every model stands from its roofline, and every model from a reference."""
