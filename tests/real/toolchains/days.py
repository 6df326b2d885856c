DAYS = {}
