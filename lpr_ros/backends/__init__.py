"""Adapters to SLAM back-ends: each translates verified loops into what one of them takes."""
