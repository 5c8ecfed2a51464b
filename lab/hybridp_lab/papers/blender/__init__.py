"""Heavy hitters: BLENDER (Avent 2023, chapter 2)."""
