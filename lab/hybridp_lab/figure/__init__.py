"""What a figure is, how its points are run and kept, and the report."""
