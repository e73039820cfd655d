"""Results to text, tables, workbooks, charts and pages."""
