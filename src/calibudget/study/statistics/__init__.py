"""What can be said of paired cells: pure functions of numbers."""
