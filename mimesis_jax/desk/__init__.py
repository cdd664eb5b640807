"""The small world as text: slots, subflows, goals, phrases, agent acts, record, procedure."""
