"""Pictures, drawn to PNG without a display."""
