"""Prepares servers elsewhere, Elasticsearch and Kibana, when a person asks for it; repeatable."""
