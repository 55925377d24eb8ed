"""The report about a drive: figures and one self-contained page, made from a DriveResult."""
