"""The commands of `kvproof`, one file each. Judges are imported inside the commands, so that help answers at once."""
