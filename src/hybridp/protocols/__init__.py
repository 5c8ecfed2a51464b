"""The conversation between the rooms, one file a task: reads like the paper's algorithm."""
