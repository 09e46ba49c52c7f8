"""What must be run before a release and is too long for each change, in parts of at most an hour, with a record of each part."""
