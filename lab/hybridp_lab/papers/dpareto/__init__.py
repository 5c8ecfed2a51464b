"""Privacy-utility fronts: DPareto (Avent 2023, chapter 3)."""
