"""Rules as rows: where an operator may run, by version and machine, each rule with its source."""
