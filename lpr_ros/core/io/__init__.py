"""File and message formats: PointCloud2, pose files, raw clouds, npz."""
