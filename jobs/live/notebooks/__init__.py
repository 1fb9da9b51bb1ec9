"""The proxy between browsers and the servers of notebooks, over HTTP and websockets.

addresses    paths and redirects that stay below the base URL of a notebook; pure
headers      headers that pass in each direction, and the security headers of responses; pure
cross_site   requests that pages of other sites have caused; pure
callers      who calls: the cookie of a notebook's origin, or a personal token
upstream     connections over HTTP/1.1 to the server in a replica, kept for the next request
exchange     one request over HTTP
relay        one websocket
answers      responses of the proxy itself
application  the ASGI application
"""
