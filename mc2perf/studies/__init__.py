"""Questions asked of many estimates."""
