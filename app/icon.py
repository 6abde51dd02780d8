"""The tab's icon, drawn here: a named one would be fetched from a host outside at every page."""

ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
    '<g stroke="#2A86BF" stroke-width="2.5"><path d="M16 16 6 7M16 16 26 7M16 16 6 25M16 16 26 25"/></g>'
    '<circle cx="16" cy="16" r="6" fill="#2A86BF"/><g fill="#E69F00"><circle cx="6" cy="7" r="4"/>'
    '<circle cx="26" cy="7" r="4"/><circle cx="6" cy="25" r="4"/><circle cx="26" cy="25" r="4"/></g></svg>'
)
