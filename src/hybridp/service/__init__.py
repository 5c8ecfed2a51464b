"""THE CURATOR ONLINE: a collection service around the library's own curator and blend. It never imports `device`."""
