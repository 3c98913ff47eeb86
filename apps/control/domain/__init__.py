"""Plain Python of control: rules over figures and configuration."""
