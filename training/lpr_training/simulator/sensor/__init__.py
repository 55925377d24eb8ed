"""LiDAR models and ray casting."""
