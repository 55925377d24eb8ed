"""Everything but ROS: clouds, model, database, verification, pipeline."""
