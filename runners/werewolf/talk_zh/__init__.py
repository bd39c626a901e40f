"""Spoken Chinese: ``reading`` takes out of a speech what it states, ``saying`` has the words of scripted players."""
