"""How exact times are written: unambiguous and sortable, in the time zone of the settings."""
