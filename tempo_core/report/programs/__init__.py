"""Plans, profiles and explanations of compiled programs."""
