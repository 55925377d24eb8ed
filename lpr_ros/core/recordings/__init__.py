"""One way to open whatever a user points at: bags, KITTI folders, packed scans."""
